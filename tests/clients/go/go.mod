// SPDX-License-Identifier: Apache-2.0
module idclient-driver

go 1.19

require idd.invalid/idclient v0.0.0

replace idd.invalid/idclient => ../../../libclient/go
