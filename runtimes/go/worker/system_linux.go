package fngwruntime

import "syscall"

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
