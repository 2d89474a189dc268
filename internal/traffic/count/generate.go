// SPDX-License-Identifier: Apache-2.0

package count

//go:generate go tool bpf2go -go-package count -no-global-types -target bpfel -cc clang -cflags "-I../../kernel/bpf/c/include -O2 -g -Wall -Werror" watch c/watch.c
