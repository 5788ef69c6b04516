package fngwruntime

import (
	"sync/atomic"
	"time"
)

// alarm rings some time after it was set, or put off, for the last time.
type alarm struct {
	wait  time.Duration
	timer timer
	isSet atomic.Bool
	// When it was set or put off, by the clock of this process.
	at atomic.Int64
}

// timer calls something some time after its last begin, unless it is stopped before. To stop it may be more than it can do.
type timer interface {
	begin()
	stop()
}

var clockBegan = time.Now()

// clock tells the time since about the beginning of the process.
func clock() time.Duration { return time.Since(clockBegan) }

// newAlarm makes one that is not set.
func newAlarm(wait time.Duration, ring func()) *alarm {
	a := &alarm{wait: wait}
	a.timer = newTimer(wait, func() {
		// Before it rings: whoever sets it from now on wants it to ring again.
		a.isSet.Store(false)
		ring()
	})
	return a
}

// set sets it, or puts it off: not for each of many bunches of calls, which costs more than it saves, but before half of the wait
// is over. A look in vain wakes another thread, each time.
func (a *alarm) set(now time.Duration) {
	if a.isSet.Load() && int64(now)-a.at.Load() < int64(a.wait)/2 {
		return
	}
	a.at.Store(int64(now))
	a.isSet.Store(true)
	a.timer.begin()
}

// clear spares a look in vain, where one bunch of calls is all there is for a while.
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
