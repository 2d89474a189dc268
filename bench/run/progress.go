// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"io"
	"time"
)

// progress reports how far the run is, and how long it will take at the pace so far.
type progress struct {
	out         io.Writer // nil: no reports
	now         func() time.Time
	began       time.Time // start of the first window
	done, total int       // numbers of windows
}

func (p *progress) sayf(format string, args ...any) {
	if p.out != nil {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// window is called before each window.
func (p *progress) window(what string) {
	left := ""
	if p.done == 0 {
		p.began = p.now()
	} else {
		each := p.now().Sub(p.began) / time.Duration(p.done)
		left = fmt.Sprintf(", %v left", (each * time.Duration(max(1, p.total-p.done))).Round(time.Second))
	}
	p.done++
	p.total = max(p.total, p.done)
	p.sayf("%3d of %d: %s%s", p.done, p.total, what, left)
}
