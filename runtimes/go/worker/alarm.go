package fngwruntime

import (
	"sync/atomic"
	"time"
)

// alarm rings some time after it was set, unless it is cleared before. It is set for each bunch of calls and hardly ever rings.
type alarm interface {
	set()
	clear()
}

// goAlarm is one that every system has. To set it costs more than some calls take: where it is first of all timers, the scheduler wakes a thread
// that shall wait for it. So it is not cleared, but rings and then is set no more.
type goAlarm struct {
	wait  time.Duration
	timer *time.Timer
	isSet atomic.Bool
}

func newGoAlarm(wait time.Duration, ring func()) *goAlarm {
	a := &goAlarm{wait: wait}
	a.timer = time.AfterFunc(wait, func() {
		// Before it rings: whoever sets it from now on wants it to ring again.
		a.isSet.Store(false)
		ring()
	})
	a.timer.Stop()
	return a
}

func (a *goAlarm) set() {
	if !a.isSet.Load() && a.isSet.CompareAndSwap(false, true) {
		a.timer.Reset(a.wait)
	}
}

func (a *goAlarm) clear() {}
