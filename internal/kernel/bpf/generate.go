// SPDX-License-Identifier: Apache-2.0

package bpf

//go:generate go tool bpf2go -go-package bpf -no-global-types -target bpfel -cc clang -cflags "-Ic/include -O2 -g -Wall -Werror" egress c/egress.c
//go:generate go tool bpf2go -go-package bpf -no-global-types -target bpfel -cc clang -cflags "-Ic/include -O2 -g -Wall -Werror" ingress c/ingress.c
