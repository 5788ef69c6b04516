package fngwruntime

import (
	"sync/atomic"
	"time"
)

// alarm rings some time after it was set, once.
type alarm struct {
	timer timer
	isSet atomic.Bool
}

// timer calls something some time after its begin, unless it is stopped before. To stop it may be more than it can do.
type timer interface {
	begin()
	stop()
}

// newAlarm makes one that is not set.
func newAlarm(wait time.Duration, ring func()) *alarm {
	a := &alarm{}
	a.timer = newTimer(wait, func() {
		// Before it rings: whoever sets it from now on wants it to ring again.
		a.isSet.Store(false)
		ring()
	})
	return a
}

// set does nothing while it is set: to begin anew for each of many bunches of calls costs more than a look in vain now and then.
func (a *alarm) set() {
	if !a.isSet.Load() && a.isSet.CompareAndSwap(false, true) {
		a.timer.begin()
	}
}

// clear spares that look, where one bunch of calls is all there is for a while.
func (a *alarm) clear() {
	if a.isSet.Load() {
		a.timer.stop()
		a.isSet.Store(false)
	}
}

// goTimer is one that every system has. Where it is the first of all timers the scheduler wakes a thread that shall wait for it.
type goTimer struct {
	wait  time.Duration
	timer *time.Timer
}

func newGoTimer(wait time.Duration, ring func()) timer {
	t := &goTimer{wait, time.AfterFunc(wait, ring)}
	t.timer.Stop()
	return t
}

func (t *goTimer) begin() { t.timer.Reset(t.wait) }

func (t *goTimer) stop() { t.timer.Stop() }
