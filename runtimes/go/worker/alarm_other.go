//go:build !linux

package fngwruntime

import "time"

func newTimer(wait time.Duration, ring func()) timer { return newGoTimer(wait, ring) }
