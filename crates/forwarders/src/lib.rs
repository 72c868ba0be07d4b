//! Standing in front of a library: functions of its names that jump to its own, with all arguments in place.
//!
//! ```text
//! program ── xyz: r11 = index, jump to SLOTS[index] ──┬─ first call: first_call ── resolve(index) ── real xyz
//!                                                     └─ afterwards: real xyz
//! ```
//!
//! A forwarder ([`forwarder`]) is two instructions and knows nothing about its function's arguments. What is written by
//! [`first_call`] keeps the argument registers while the real function is found. The library in front has the slots, all of them
//! `first_call` at first, and `resolve`, which never unwinds.
//!
//! Nothing here takes a lock, so a child of `fork` finds everything usable.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "rota's libraries forward calls in x86-64 machine code for Linux; other systems are not supported yet"
);

mod once;
mod own_path;

pub use once::Once;
pub use own_path::own_path;

/// Writes the exported function `symbol`, which jumps to where slot `index` of `slots` says.
#[macro_export]
macro_rules! forwarder {
    ($symbol:ident, $index:literal, $slots:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $symbol() {
            std::arch::naked_asm!(
                "mov r11d, {index}",
                "jmp qword ptr [rip + {slots} + 8*{index}]",
                index = const $index,
                slots = sym $slots,
            )
        }
    };
}

/// Writes the function `name`, the first call of any forwarder: has `resolve` find the real function of the index, and jumps
/// there, with all arguments as they came.
///
/// Arguments travel in rdi, rsi, rdx, rcx, r8, r9 and xmm0 to xmm7, with the number of the latter in al, and on the
/// stack, which is left alone. r11, the index, belongs to nobody across a call.
#[macro_export]
macro_rules! first_call {
    ($name:ident, $resolve:path) => {
        #[unsafe(naked)]
        extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192", // A multiple of 16: the stack is aligned for the call.
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movaps [rsp + 64], xmm0",
                "movaps [rsp + 80], xmm1",
                "movaps [rsp + 96], xmm2",
                "movaps [rsp + 112], xmm3",
                "movaps [rsp + 128], xmm4",
                "movaps [rsp + 144], xmm5",
                "movaps [rsp + 160], xmm6",
                "movaps [rsp + 176], xmm7",
                "mov edi, r11d",
                "call {resolve}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movaps xmm0, [rsp + 64]",
                "movaps xmm1, [rsp + 80]",
                "movaps xmm2, [rsp + 96]",
                "movaps xmm3, [rsp + 112]",
                "movaps xmm4, [rsp + 128]",
                "movaps xmm5, [rsp + 144]",
                "movaps xmm6, [rsp + 160]",
                "movaps xmm7, [rsp + 176]",
                "leave",
                "jmp r11",
                resolve = sym $resolve,
            )
        }
    };
}
