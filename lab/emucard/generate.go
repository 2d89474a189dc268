// SPDX-License-Identifier: Apache-2.0

package emucard

//go:generate go tool bpf2go -go-package emucard -no-global-types -target bpfel -cc clang -cflags "-I../../internal/kernel/bpf/c/include -O2 -g -Wall -Werror" card c/card.c
