// SPDX-License-Identifier: Apache-2.0
module idd.invalid/idclient

go 1.19
