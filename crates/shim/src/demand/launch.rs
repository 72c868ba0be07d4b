//! A launch: counted in its stream's slot, and on its way to the real driver.
//!
//! ```text
//! cuLaunchKernel: r10 = stream ── slot at its place? ── begun + 1 ── page: idle? ── call SLOTS[index] ── taken + 1
//!                                  └ no: count_slowly: claim one ┘    └ yes: count_slowly: wake up, and count anew;
//!                                                                          once the driver has it, over: say so
//! ```
//!
//! Written in machine code because nothing else is as short: a launch takes a few microseconds, and is what programs do
//! most. `build.rs` writes one function for each line of `launched.txt`. In the C calling convention rax, r10 and r11
//! belong to nobody at a call; the argument registers and the stack stay as they are. None of these functions has
//! arguments in vector registers, and none has more than eleven, so that five words of the stack are passed on: with
//! fewer arguments, what is read is the caller's own, and the driver's function does not look at it.

use std::arch::naked_asm;

use super::slots::{Slot, StreamKey};
use super::{Handover, WORK, launch_seen, launched, stir_before_launch, vacate};
use crate::guard::guarded;

/// One launch. The instructions given load the stream's key into r10, and change nothing else but flags.
#[macro_export]
macro_rules! launched {
    ($symbol:ident, $index:literal, $($load:literal),*) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $symbol() {
            std::arch::naked_asm!(
                $($load,)*
                "imul r11, r10, {spread}",
                "shr r11, {spread_shift}",
                "shl r11, {slot_shift}",
                "lea rax, [rip + {work}]",
                "add r11, rax",
                "cmp [r11], r10",
                "jne 3f",
                // Locked: what follows must not be read before this is seen by all.
                "lock inc qword ptr [r11 + {begun}]",
                "mov rax, [rip + {page}]",
                "cmp qword ptr [rax + {idle}], 0",
                "jne 2f",
                "push rbp",
                "mov rbp, rsp",
                "push r11",
                "push qword ptr [rbp + 48]",
                "push qword ptr [rbp + 40]",
                "push qword ptr [rbp + 32]",
                "push qword ptr [rbp + 24]",
                "push qword ptr [rbp + 16]", // The sixth word: the stack is aligned for the call.
                "mov r11d, {index}",
                "call qword ptr [rip + {slots} + 8*{index}]",
                "mov r11, [rbp - 8]",
                "lock inc qword ptr [r11 + {taken}]",
                "leave",
                "ret",
                "2:",
                // Counted anew below, so this one is over.
                "lock inc qword ptr [r11 + {taken}]",
                "3:",
                "call {slowly}",
                // As above, and then whatever was put off until the driver has it.
                "push rbp",
                "mov rbp, rsp",
                "push r11",
                "push qword ptr [rbp + 48]",
                "push qword ptr [rbp + 40]",
                "push qword ptr [rbp + 32]",
                "push qword ptr [rbp + 24]",
                "push qword ptr [rbp + 16]",
                "mov r11d, {index}",
                "call qword ptr [rip + {slots} + 8*{index}]",
                "mov r11, [rbp - 8]",
                "lock inc qword ptr [r11 + {taken}]",
                "mov [rbp - 8], rax",
                "call {over}",
                "mov rax, [rbp - 8]",
                "leave",
                "ret",
                spread = const $crate::demand::launch::SPREAD,
                spread_shift = const $crate::demand::launch::SPREAD_SHIFT,
                slot_shift = const $crate::demand::launch::SLOT_BYTES_SHIFT,
                begun = const $crate::demand::launch::BEGUN_OFFSET,
                taken = const $crate::demand::launch::TAKEN_OFFSET,
                idle = const wire::IDLE_SINCE_OFFSET,
                work = sym $crate::demand::WORK,
                page = sym $crate::demand::PAGE,
                slowly = sym $crate::demand::launch::count_slowly,
                over = sym $crate::demand::launch::over,
                slots = sym super::SLOTS,
                index = const $index,
            )
        }
    };
}

pub(crate) use super::slots::{BEGUN_OFFSET, SLOT_BYTES_SHIFT, SPREAD, SPREAD_SHIFT, TAKEN_OFFSET};

/// Takes the key in r10, keeps the arguments, returns the slot in r11. Called with the stack as at the launch's beginning.
#[unsafe(naked)]
pub(crate) extern "C" fn count_slowly() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9", // The sixth: with the two addresses above, the stack is aligned for the call.
        "mov rdi, r10",
        "call {count}",
        "mov r11, rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "ret",
        count = sym count,
    )
}

/// Counts work that begins, in its slot. Never unwinds: its caller has no unwinding tables.
extern "C" fn count(key: u64) -> *const Slot {
    let counted = || {
        // 2 is the thread's own default stream, whatever the function.
        let key = if key == 2 { StreamKey::of_this_thread() } else { StreamKey(key) };
        let handover = Handover::begin_with(key, stir_before_launch);
        let slot: *const Slot = handover.slot();
        // The launch itself says when the driver has taken it.
        std::mem::forget(handover);
        vacate::count_off();
        slot
    };
    let lost = || {
        let slot = WORK.claim(StreamKey::UNKNOWN);
        slot.begin();
        std::ptr::from_ref(slot)
    };
    let slot = guarded("counting a launch", lost, counted);
    guarded("counting a launch", || (), launch_seen);
    guarded("counting a launch", || (), stir_before_launch);
    slot
}

/// The driver has a launch that was counted slowly, or has refused it.
pub(crate) extern "C" fn over() {
    guarded("a launch", || (), launched);
}
