//go:build !linux

package fngwruntime

import "time"

func newAlarm(wait time.Duration, ring func()) alarm { return newGoAlarm(wait, ring) }
