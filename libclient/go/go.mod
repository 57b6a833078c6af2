// SPDX-License-Identifier: Apache-2.0
module idclient

go 1.19
