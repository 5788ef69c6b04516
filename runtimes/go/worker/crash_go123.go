//go:build go1.23

package fngwruntime

import (
	"os"
	"runtime/debug"
)

// tellCrashes sends the runtime's last words to a file that is read after the process is gone.
func tellCrashes(to *os.File) { _ = debug.SetCrashOutput(to, debug.CrashOptions{}) }
