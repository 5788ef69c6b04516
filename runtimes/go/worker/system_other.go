//go:build !linux

package fngwruntime

import "syscall"

func duplicate(from, to int) error { return syscall.Dup2(from, to) }

func memoryLimit() int64 { return 0 }
