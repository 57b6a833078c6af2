// SPDX-License-Identifier: Apache-2.0
module idclient-driver

go 1.19

require idclient v0.0.0

replace idclient => ../../../libclient/go
