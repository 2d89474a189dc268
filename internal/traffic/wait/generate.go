// SPDX-License-Identifier: Apache-2.0

package wait

//go:generate go tool bpf2go -go-package wait -no-global-types -target bpfel -cc clang -cflags "-I../../kernel/bpf/c/include -O2 -g -Wall -Werror" wait c/wait.c
