// SPDX-License-Identifier: Apache-2.0

package sockclass

//go:generate go tool bpf2go -go-package sockclass -no-global-types -target bpfel -cc clang -cflags "-I../bpf/c/include -O2 -g -Wall -Werror" sock c/sock.c
//go:generate go tool bpf2go -go-package sockclass -no-global-types -target bpfel -cc clang -cflags "-I../bpf/c/include -O2 -g -Wall -Werror" queued c/queued.c
