package fngwruntime

import (
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
