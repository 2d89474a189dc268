// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/niclane/niclane/bench/power"
)

// maxMeters is the largest number of active meters.
const maxMeters = 16

// meter starts to read a power source of this host and returns a number; metered takes the number
// and ends the reading. The agent itself reads, not a job: since Linux 5.10, only root can read
// RAPL's counters.
func (s *session) meter(c power.Config) (int, error) {
	if !c.Local() {
		// A client must not be able to make the agent open connections or read credentials.
		return 0, fmt.Errorf("power source %.40q: an agent reads its own host's sensors only, want %s, %s, or %s "+
			"with a device", c.Source, power.RAPL, power.Hwmon, power.IPMI)
	}
	c.Sysfs = s.agent.Sysfs
	source, err := power.Open(c)
	if err != nil {
		return 0, err
	}
	// Not under the lock: finding a sensor's update interval takes time.
	m, err := source.Start(s.ctx)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		err = errClosed
	case len(s.meters) >= maxMeters:
		err = fmt.Errorf("more than %d power sources under way", maxMeters)
	}
	if err != nil {
		m.Stop(s.ctx)
		return 0, err
	}
	s.last++
	s.meters[s.last] = m
	return s.last, nil
}

func (s *session) metered(id int) (power.Result, error) {
	s.mu.Lock()
	m := s.meters[id]
	delete(s.meters, id)
	s.mu.Unlock()
	if m == nil {
		return power.Result{}, fmt.Errorf("no power source %d is under way", id)
	}
	return m.Stop(s.ctx), nil
}
