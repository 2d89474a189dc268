// SPDX-License-Identifier: Apache-2.0

package power_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/niclane/niclane/bench/power"
)

// Example measures one minute of work on a host with two power supplies, on two inlets of a PDU.
func Example() {
	src, err := power.Open(power.Config{
		Source:          power.Raritan,
		Address:         "pdu.example",
		Credentials:     "/etc/niclane/pdu",
		Inlets:          []int{1, 2},
		AccuracyPercent: 1, // from the PDU's data sheet
	})
	if err != nil {
		log.Fatal(err) // err has every error in the Config
	}
	var bytes, requests uint64
	r, err := power.Measure(context.Background(), src, func() error {
		bytes, requests = work(time.Minute)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	d, err := r.Derive(power.Work{
		Duration: r.Duration, Bytes: bytes, BytesFrom: "eth0 rx_bytes + tx_bytes",
		Requests: requests, SLA: "P99 ≤ 1 ms",
	})
	if err != nil {
		log.Fatal(err) // err says why nothing was measured
	}
	fmt.Printf("%.0f W (%.0f to %.0f), %.3f Gbit/s per W at %s\n",
		r.Power.Value, r.Power.Low, r.Power.High, d.RatePerWatt.Value, d.Work.SLA)
}

func work(time.Duration) (bytes, requests uint64) { return 0, 0 }
