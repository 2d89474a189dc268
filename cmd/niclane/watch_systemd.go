// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/niclane/niclane/watch"
)

// A supervisor is systemd, if it has started this process as a service that
// tells when it is ready (sd_notify(3)). Nobody is told where there is none.
type supervisor struct {
	// heartbeat is how often it wants to be told that the process lives, half
	// of its patience (sd_watchdog_enabled(3)); 0: it does not.
	heartbeat time.Duration
	isReady   bool
	watchdog  bool
}

func newSupervisor() *supervisor {
	s := &supervisor{}
	if d, err := daemon.SdWatchdogEnabled(false); err == nil && d > 0 {
		s.watchdog, s.heartbeat = true, d/2
	}
	return s
}

// say tells; whether it is heard is the supervisor's concern.
func (s *supervisor) say(state string) { _, _ = daemon.SdNotify(false, state) }

func (s *supervisor) ready(status string) {
	if !s.isReady {
		s.isReady = true
		s.say(daemon.SdNotifyReady)
	}
	s.say("STATUS=" + status)
}

func (s *supervisor) alive() {
	if s.watchdog {
		s.say(daemon.SdNotifyWatchdog)
	}
}

func (s *supervisor) stopping() { s.say(daemon.SdNotifyStopping) }

// also has the last event as the service's status.
func (s *supervisor) also(report func(watch.Event)) func(watch.Event) {
	return func(e watch.Event) {
		report(e)
		s.say("STATUS=" + e.String())
	}
}
