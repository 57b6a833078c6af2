// SPDX-License-Identifier: Apache-2.0

package idclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"idd.invalid/idclient"
)

func ExampleOpen() {
	client, err := idclient.Open(idclient.WithTimeout(200 * time.Millisecond))
	if err != nil {
		log.Print(err) // idd does not run, or does not trust this user
		return
	}
	defer client.Close()
	orders, err := client.Tag("orders")
	if err != nil {
		log.Print(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	id, err := orders.Claim(ctx)
	if errors.Is(err, idclient.ErrTimeout) {
		log.Print("no ids now: ", err)
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("order", id)
}
