//go:build !go1.23

package fngwruntime

import "os"

// tellCrashes has no way to do it before Go 1.23: the last words of such a process are lost.
func tellCrashes(*os.File) {}
