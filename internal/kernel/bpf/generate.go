// SPDX-License-Identifier: Apache-2.0

package bpf

//go:generate go tool bpf2go -go-package bpf -no-global-types -target bpfel -cc clang -cflags "-Ic/include -O2 -g -Wall -Werror -mcpu=v3" egress c/egress.c
//go:generate go tool bpf2go -go-package bpf -no-global-types -target bpfel -cc clang -cflags "-Ic/include -O2 -g -Wall -Werror" ingress c/ingress.c
