// SPDX-License-Identifier: Apache-2.0

package napi

//go:generate go tool bpf2go -go-package napi -no-global-types -target bpfel -cc clang -cflags "-I../../kernel/bpf/c/include -O2 -g -Wall -Werror" polls c/polls.c
