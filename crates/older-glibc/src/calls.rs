//! What a use of a function jumps to. A jump keeps all arguments, and the caller's address: `dlsym` goes by that.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("the versions of these functions are known for glibc on x86-64 only");

/// Leads a function on to an older version of itself.
macro_rules! older {
    ($($symbol:literal, $version:literal;)*) => {
        $(
            std::arch::global_asm!(
                concat!(".symver rota_older_", $symbol, ", ", $symbol, "@GLIBC_", $version),
                concat!(".globl __wrap_", $symbol),
                concat!(".hidden __wrap_", $symbol),
                concat!(".type __wrap_", $symbol, ", @function"),
                concat!("__wrap_", $symbol, ":"),
                concat!("jmp [rip + rota_older_", $symbol, "@GOTPCREL]"),
            );
        )*
    };
}

older! {
    "dladdr", "2.2.5";
    "dlerror", "2.2.5";
    "dlopen", "2.2.5";
    "dlsym", "2.2.5";
    "pthread_attr_getguardsize", "2.2.5";
    "pthread_attr_getstack", "2.2.5";
    "pthread_attr_setstacksize", "2.2.5";
    "pthread_create", "2.2.5";
    "pthread_detach", "2.2.5";
    "pthread_getattr_np", "2.2.5";
    "pthread_getspecific", "2.2.5";
    "pthread_join", "2.2.5";
    "pthread_key_create", "2.2.5";
    "pthread_key_delete", "2.2.5";
    "pthread_setname_np", "2.12";
    "pthread_setspecific", "2.2.5";
    "pthread_sigmask", "2.2.5";
}

/// Makes a function of another one, by instructions that put the arguments where that expects them.
macro_rules! made {
    ($($symbol:literal => $other:literal: $($instruction:literal),*;)*) => {
        $(
            std::arch::global_asm!(
                concat!(".globl __wrap_", $symbol),
                concat!(".hidden __wrap_", $symbol),
                concat!(".type __wrap_", $symbol, ", @function"),
                concat!("__wrap_", $symbol, ":"),
                $($instruction,)*
                concat!("jmp [rip + ", $other, "@GOTPCREL]"),
            );
        )*
    };
}

// Before glibc 2.33 the first argument said which layout of the structure is meant; 1 is the one that there is. Calls of the
// system are made by their number, and `syscall` sets errno as their own functions would.
made! {
    "stat64" => "__xstat64": "mov rdx, rsi", "mov rsi, rdi", "mov edi, 1";
    "lstat64" => "__lxstat64": "mov rdx, rsi", "mov rsi, rdi", "mov edi, 1";
    "fstat64" => "__fxstat64": "mov rdx, rsi", "mov esi, edi", "mov edi, 1";
    "gettid" => "syscall": "mov edi, 186", "xor eax, eax";
    "getrandom" => "syscall": "mov rcx, rdx", "mov rdx, rsi", "mov rsi, rdi", "mov edi, 318", "xor eax, eax";
    "statx" => "syscall":
        "mov r9, r8", "mov r8, rcx", "mov rcx, rdx", "mov rdx, rsi", "movsxd rsi, edi", "mov edi, 332", "xor eax, eax";
}
