// SPDX-License-Identifier: Apache-2.0

package sockiter

//go:generate go tool bpf2go -go-package sockiter -no-global-types -target bpfel -cc clang -cflags "-I../../internal/kernel/bpf/c/include -O2 -g -Wall -Werror" sockets c/sockets.c
