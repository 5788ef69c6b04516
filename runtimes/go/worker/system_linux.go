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

// pipe makes one that programs which are started do not get.
func pipe() (in, out int, err error) {
	var ends [2]int
	err = syscall.Pipe2(ends[:], syscall.O_CLOEXEC)
	return ends[0], ends[1], err
}

// memoryLimit is what the function may allocate in bytes, 0 without a limit.
func memoryLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(limitData, &limit) != nil || limit.Cur > 1<<50 {
		return 0
	}
	return int64(limit.Cur) - baseMemoryMb*mib
}

// pollFd is what the system takes to wait for a descriptor.
type pollFd struct {
	fd             int32
	events, result int16
}

const (
	pollIn  = 1
	pollOut = 4
)

// watched are descriptors of which one call of the system tells which can be read: a set that was made before is looked at
// faster than the same ones named anew.
type watched struct {
	set         int
	descriptors [2]int
}

func watch(descriptors [2]int) (watched, error) {
	w := watched{descriptors: descriptors}
	var err error
	if w.set, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return w, err
	}
	for at, descriptor := range descriptors {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(at)}
		if err := syscall.EpollCtl(w.set, syscall.EPOLL_CTL_ADD, descriptor, &event); err != nil {
			return w, err
		}
	}
	return w, nil
}

// readable tells which can be read now.
func (w *watched) readable() (are [2]bool) {
	var events [2]syscall.EpollEvent
	// It does not wait, so the scheduler need not know of it.
	count, _, problem := syscall.RawSyscall6(
		syscall.SYS_EPOLL_PWAIT, uintptr(w.set), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
	if problem != 0 {
		return [2]bool{true, true}
	}
	for _, event := range events[:count] {
		are[event.Fd] = true
	}
	return are
}
