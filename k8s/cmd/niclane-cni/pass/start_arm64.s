// SPDX-License-Identifier: Apache-2.0

#include "go_asm.h"
#include "textflag.h"

// start is what the kernel begins the program at (early.go).
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	RSP, R0
	MOVD	R0, ·next+request_stack(SB)
	MOVD	$·nobody(SB), g

again:
	MOVD	·advancing(SB), R26
	MOVD	(R26), R1
	CALL	(R1)
	MOVD	·next+request_number(SB), R8
	CMN	$1, R8	// noCall
	BEQ	over
	MOVD	·next+request_first(SB), R0
	MOVD	·next+request_second(SB), R1
	MOVD	·next+request_third(SB), R2
	SVC
	MOVD	R0, ·next+request_result(SB)
	JMP	again

over:
	JMP	_rt0_arm64_linux(SB)
