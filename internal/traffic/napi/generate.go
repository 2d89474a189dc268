// SPDX-License-Identifier: Apache-2.0

package polls

//go:generate go tool bpf2go -go-package polls -no-global-types -target bpfel,bpfeb -cc clang -cflags "-I../../kernel/bpf/c/include -O2 -g -Wall -Werror" polls c/polls.c
