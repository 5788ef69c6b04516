package fngwruntime

import (
	"net"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	// RLIMIT_DATA, which package syscall does not name on every machine.
	limitData = 2
	// Megabytes the daemon allows beside what the function may allocate: code, stacks, reserved heap.
	baseMemoryMb = 256
)

func duplicate(from, to int) error { return syscall.Dup3(from, to, 0) }

// memoryLimit is what the function may allocate in bytes, 0 without a limit.
func memoryLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(limitData, &limit) != nil || limit.Cur > 1<<50 {
		return 0
	}
	return int64(limit.Cur) - baseMemoryMb*mib
}

type pollFd struct {
	fd             int32
	events, result int16
}

const pollIn = 1

// readable tells which of two descriptors can be read now.
func readable(descriptors [2]int) (are [2]bool) {
	var fds [2]pollFd
	for i, descriptor := range descriptors {
		fds[i] = pollFd{fd: int32(descriptor), events: pollIn}
	}
	var none syscall.Timespec
	// It does not wait, so the scheduler need not know of it.
	count, _, _ := syscall.RawSyscall6(
		syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)), uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	for i, fd := range fds {
		are[i] = int(count) > 0 && fd.result != 0
	}
	return are
}

// newAwait makes a wait for input that takes the thread along: to park the goroutine and to wake it again costs several calls of the system.
// With one processor it would hold up others until the scheduler notices, so there it does nothing, and the read that follows parks.
func newAwait(conn net.Conn) func() {
	file, isFile := conn.(syscall.Conn)
	if !isFile || runtime.GOMAXPROCS(0) < 2 {
		return func() {}
	}
	descriptor := int32(-1)
	if raw, err := file.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { descriptor = int32(fd) }) != nil {
		return func() {}
	}
	return func() {
		waiting := pollFd{fd: descriptor, events: pollIn}
		_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&waiting)), 1, 0, 0, 0, 0)
	}
}
