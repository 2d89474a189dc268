// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/niclane/niclane/watch"
)

// A supervisor sends notifications to systemd, if systemd started this process as a service that
// reports when it is ready (sd_notify(3)). Otherwise its methods do nothing.
type supervisor struct {
	// heartbeat is the time between notifications for systemd's watchdog: half of the watchdog's limit
	// (sd_watchdog_enabled(3)). 0: there is no watchdog.
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

// say sends a notification to systemd and ignores errors.
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

// also returns a function that first calls report and then shows the event as the service's status.
func (s *supervisor) also(report func(watch.Event)) func(watch.Event) {
	return func(e watch.Event) {
		report(e)
		s.say("STATUS=" + e.String())
	}
}
