# From the loader to Rust: PVH entry (32 bits, paging off) and the start of the
# other CPUs (16 bits), both into long mode on the boot tables, then to the
# linked address in the high half.
#
# Boot tables: the first 4 GiB identically (until the last CPU is up), all
# physical memory below 512 GiB at 0xffff800000000000 (no execution), the image
# at -2 GiB. boot/paging.rs replaces them.

.set HIGH, 0xffffffff80000000
.set CR0_FLAGS, 0x80010033      # PG WP NE ET MP PE
.set CR4_FLAGS, 0x00000620      # OSXMMEXCPT OSFXSR PAE
.set EFER_FLAGS, 0x00000901     # NXE LME SCE

.section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18              # XEN_ELFNOTE_PHYS32_ENTRY; the size QEMU reads is 8
    .asciz "Xen"
    .quad pvh_start

.section .boot, "awx", @progbits
.code32
.global pvh_start
pvh_start:
    cli
    cld
    movl %ebx, boot_info
    movl $boot_cpu_64, %ebp
    lgdtl boot_gdtr
    ljmpl $0x08, $enter_long_mode

# In: %ebp, where to go in 64-bit code.
enter_long_mode:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $CR4_FLAGS, %eax
    movl %eax, %cr4
    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    xorl %edx, %edx
    movl $EFER_FLAGS, %eax
    wrmsr
    movl $CR0_FLAGS, %eax
    movl %eax, %cr0
    ljmpl $0x18, $in_long_mode

.code64
in_long_mode:
    xorl %eax, %eax
    movw %ax, %fs
    movw %ax, %gs
    jmpq *%rbp

boot_cpu_64:
    movabsq $boot_stack_top, %rsp
    movl boot_info, %edi
    xorl %ebp, %ebp
    movabsq $kernel_main, %rax
    callq *%rax
    ud2

# Each further CPU takes the next number and the stack laid out for it.
other_cpu_64:
    movl $1, %edi
    lock xaddl %edi, next_cpu
    movabsq $CPU_STACKS, %rax
    movq (%rax,%rdi,8), %rsp
    xorl %ebp, %ebp
    movabsq $other_cpu_main, %rax
    callq *%rax
    ud2

.code32
other_cpu_32:
    movl $other_cpu_64, %ebp
    jmp enter_long_mode

# Copied to a page below 1 MiB, whose number the start-up interrupt carries.
.code16
.global trampoline_start
trampoline_start:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl 0x8000 + (trampoline_gdtr - trampoline_start)
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x08, $other_cpu_32
.balign 4
trampoline_gdtr:
    .word 31
    .long boot_gdt
.global trampoline_end
trampoline_end:

.code64
.balign 8
boot_gdt:
    .quad 0
    .quad 0x00cf9a000000ffff    # 0x08 code, 32 bits
    .quad 0x00cf92000000ffff    # 0x10 data
    .quad 0x00af9a000000ffff    # 0x18 code, 64 bits
boot_gdtr:
    .word 31
    .long boot_gdt
.balign 4
boot_info:
    .long 0
next_cpu:
    .long 1

.balign 4096
boot_pml4:
    .quad identity_pdpt + 3
    .fill 255, 8, 0
    .quad direct_pdpt + 3
    .fill 254, 8, 0
    .quad image_pdpt + 3
identity_pdpt:
    .quad 0x00000083, 0x40000083, 0x80000083, 0xc0000083
    .fill 508, 8, 0
image_pdpt:
    .fill 510, 8, 0
    .quad 0x83
    .quad 0
.global direct_pdpt
direct_pdpt:
.set gib, 0
.rept 512
    .quad (gib << 30) + 0x83 + (1 << 63)
    .set gib, gib + 1
.endr

.section .bss.boot_stack, "aw", @nobits
.balign 4096
    .skip 65536
boot_stack_top:
