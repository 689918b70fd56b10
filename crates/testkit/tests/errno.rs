//! The table of error numbers against the C library's.

use softfault::Errno;

/// Checks each name: its number, and the way back. Gives the numbers.
macro_rules! check {
    ($($name:ident)*) => {{
        $(assert_eq!(Errno::$name, Errno(libc::$name), stringify!($name));)*
        $(assert_eq!(Errno(libc::$name).name(), Some(stringify!($name)));)*
        [$(libc::$name),*]
    }};
}

#[test]
fn names_and_numbers_are_those_of_the_c_library() {
    let numbers = check! {
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
        EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM
        ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG
        EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET
        ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG
        ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE
        EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
        EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN
        ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL
        EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD
        ENOTRECOVERABLE ERFKILL EHWPOISON
    };
    let all: Vec<i32> = Errno::ALL.iter().map(|errno| errno.0).collect();
    assert_eq!(all, numbers, "the same, in the same order");
    assert_eq!(Errno::EWOULDBLOCK, Errno(libc::EWOULDBLOCK));
    assert_eq!(Errno::EDEADLOCK, Errno(libc::EDEADLOCK));
    assert_eq!(Errno::ENOTSUP, Errno(libc::ENOTSUP));
}

#[test]
fn a_number_without_a_name_is_shown() {
    assert_eq!(Errno::EINVAL.to_string(), "EINVAL");
    for number in [0, -1, 41, 58, 134, 512, i32::MAX] {
        assert_eq!((Errno(number).name(), Errno(number).to_string()), (None, format!("errno {number}")));
    }
}
