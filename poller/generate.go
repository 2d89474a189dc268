// SPDX-License-Identifier: Apache-2.0

package poller

//go:generate go tool bpf2go -go-package poller -no-global-types -target bpfel -cc clang -cflags "-I../internal/kernel/bpf/c/include -O2 -g -Wall -Werror -mcpu=v3" napi c/napi.c
