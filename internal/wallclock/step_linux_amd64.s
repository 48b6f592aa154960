#include "textflag.h"

// func clock()
// In C's calling convention: DI is the clock, SI where the time goes. CLOCK_REALTIME is 0.
TEXT ·clock(SB),NOSPLIT|NOFRAME,$0
	SUBQ	$24, SP // aligned to 16, with the return address
	MOVQ	DI, 0(SP)
	MOVQ	SI, 8(SP)
	MOVQ	·original(SB), AX
	CALL	AX
	MOVQ	0(SP), DI
	MOVQ	8(SP), SI
	ADDQ	$24, SP
	TESTL	DI, DI
	JNE	done
	MOVQ	·ahead(SB), CX
	ADDQ	CX, 0(SI)
done:
	RET

// func clockAddress() uintptr
TEXT ·clockAddress(SB),NOSPLIT,$0-8
	LEAQ	·clock(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
