// SPDX-License-Identifier: Apache-2.0

#include "go_asm.h"
#include "textflag.h"

// start is what the kernel begins the program at (early.go).
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVQ	SP, ·next+request_stack(SB)
	LEAQ	·nobody(SB), R14	// Go's goroutine
	XORPS	X15, X15	// Go's zero

again:
	MOVQ	·advancing(SB), DX
	MOVQ	(DX), AX
	CALL	AX
	MOVQ	·next+request_number(SB), AX
	CMPQ	AX, $-1	// noCall
	JEQ	over
	MOVQ	·next+request_first(SB), DI
	MOVQ	·next+request_second(SB), SI
	MOVQ	·next+request_third(SB), DX
	SYSCALL
	MOVQ	AX, ·next+request_result(SB)
	JMP	again

over:
	JMP	_rt0_amd64_linux(SB)
