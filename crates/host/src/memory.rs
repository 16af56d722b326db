//! The memory of this process.

/// Gives the kernel back what the allocator keeps but nobody uses. Worth it once the large first lists have been read:
/// their objects lie between the small ones that stay. Takes a few milliseconds; does nothing where the C library has
/// no such call.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes a number, has no precondition, and moves no memory that is in use.
        #[expect(unsafe_code, reason = "a call of the C library without a safe form")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
