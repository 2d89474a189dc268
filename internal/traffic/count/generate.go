// SPDX-License-Identifier: Apache-2.0

package watch

//go:generate go tool bpf2go -go-package watch -no-global-types -target bpfel,bpfeb -cc clang -cflags "-I../../kernel/bpf/c/include -O2 -g -Wall -Werror" watch c/watch.c
