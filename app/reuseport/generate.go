// SPDX-License-Identifier: Apache-2.0

package reuseport

//go:generate go tool bpf2go -go-package reuseport -no-global-types -target bpfel -cc clang -cflags "-I../../internal/kernel/bpf/c/include -O2 -g -Wall -Werror" listen c/listen.c
