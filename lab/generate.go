// SPDX-License-Identifier: Apache-2.0

package lab

//go:generate go tool bpf2go -go-package lab -no-global-types -target bpfel -cc clang -cflags "-I../internal/kernel/bpf/c/include -O2 -g -Wall -Werror" fabric c/switch.c
