# Every way into the kernel and out of it. All of them build the same frame
# (arch/frame.rs) on the kernel stack of the thread:
#
#   xmm0-15 | mxcsr, pad | r15 .. rax | vector | error | rip cs rflags rsp ss
#
# xmm0-15 are saved at each entry because compiled kernel code uses them. %gs is
# the CPU's block inside the kernel, the program's outside: `swapgs` on the way
# in and out of ring 3, and around the change of a thread's bases (segments.rs).

.set USER_CS, 0x33
.set USER_SS, 0x2b

.macro SAVE_ALL
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    sub rsp, 272
    stmxcsr [rsp + 256]
    ldmxcsr [rip + kernel_mxcsr]
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps [rsp + 16 * \n], xmm\n
    .endr
.endm

.macro RESTORE_ALL
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps xmm\n, [rsp + 16 * \n]
    .endr
    ldmxcsr [rsp + 256]
    add rsp, 272
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
.endm

.section .rodata.entry, "a"
.balign 4
kernel_mxcsr:
    .long 0x1f80

.section .text.entry, "ax"

# In: vector and error code pushed.
trap_common:
    test byte ptr [rsp + 24], 3
    jz 1f
    swapgs
1:  clac
    cld
    SAVE_ALL
    xor ebp, ebp
    mov rdi, rsp
    call trap_dispatch
.global trap_return
trap_return:
    RESTORE_ALL
    test byte ptr [rsp + 24], 3
    jz 1f
    swapgs
1:  add rsp, 16
    iretq

# NMI, double fault, machine check: on stacks of their own, never to return, and
# possibly between an entry and its `swapgs`. A program may give %gs any base
# (CR4.FSGSBASE), so its value tells nothing: the address of the CPU's block is above
# the frame, where descriptors.rs has put it.
fatal_common:
    SAVE_ALL
    mov rax, [rsp + 448]
    mov rdx, rax
    shr rdx, 32
    mov ecx, 0xc0000101
    wrmsr
    cld
    mov rdi, rsp
    call trap_dispatch
    ud2

.global syscall_entry
syscall_entry:
    swapgs
    mov gs:[16], rsp
    mov rsp, gs:[8]
    push USER_SS
    push gs:[16]
    push r11
    push USER_CS
    push rcx
    push rax
    push 0x100
    SAVE_ALL
    xor ebp, ebp
    mov rdi, rsp
    call syscall_dispatch
    # `sysret` takes rip and rflags from rcx and r11: right if they say the same
    # and rip is below the last user page (a `sysret` elsewhere faults in ring 0). With
    # TF it would trap before the program's next instruction, each time anew, and RF it
    # does not restore.
    mov rcx, [rsp + 408]
    cmp rcx, [rsp + 272 + 12 * 8]
    jne trap_return
    mov r11, [rsp + 424]
    cmp r11, [rsp + 272 + 4 * 8]
    jne trap_return
    test r11d, 0x10100
    jnz trap_return
    mov rax, 0x7ffffffff000
    cmp rcx, rax
    jae trap_return
    RESTORE_ALL
    mov rsp, [rsp + 40]
    swapgs
    sysretq

# switch_stacks(save: *mut u64, load: u64)
.global switch_stacks
switch_stacks:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

# Where a new thread's first switch returns to: its frame lies above.
.global thread_begin
thread_begin:
    call thread_started
    jmp trap_return

# 256 stubs of 16 bytes. `.byte 0x68; .long v` is `push v`, which Intel syntax
# would read as a memory operand.
.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if (vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    push 0
    .endif
    .byte 0x68
    .long vector
    .if (vector == 2) || (vector == 8) || (vector == 18)
    jmp fatal_common
    .else
    jmp trap_common
    .endif
    .set vector, vector + 1
.endr
