// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

// A Keeper keeps the lanes of a Machine as they were applied, by looks and repairs.
type Keeper struct {
	m Machine
	o Options

	mu    sync.Mutex // guards files, count and failing, which State reads
	files map[string]*file
	count Count
	// failing is the error of the last look, "" if there was none.
	failing string

	told    time.Time     // when the first event of this round arrived; zero: the round has none
	cost    time.Duration // how long the last look took
	hurried int           // number of successive rounds that events caused and that came after a short pause
	spent   time.Duration // processor time of the last round that events caused
	ended   time.Time     // end of the last round that events caused
	busy    time.Time     // since when another process holds the machine; zero: none does
}

// file is what the keeper knows about the lanes of one file.
type file struct {
	generation string
	ground     string
	troubles   map[string]*trouble
	waits      map[string]string
}

// Count has numbers that count from the keeper's start.
type Count struct {
	Looks, Events, Drifts, Repairs, Failures uint64
	// LastLook is the time of the last look.
	LastLook time.Time
}

// NewKeeper returns a Keeper of m.
func NewKeeper(m Machine, o Options) *Keeper {
	return &Keeper{m: m, o: o.withDefaults(), files: map[string]*file{}}
}

// errNoEvents is returned if the channel of events is closed.
var errNoEvents = errors.New("the kernel's notifications have ended")

// Run keeps the lanes until ctx ends, and then returns nil. Each value on events causes a look.
// What the value is does not matter.
func Run[E any](ctx context.Context, k *Keeper, events <-chan E) error {
	k.round(ctx)
	again := time.NewTimer(k.next())
	defer again.Stop()
	beat := make(<-chan time.Time)
	if k.o.Heartbeat > 0 {
		t := time.NewTicker(k.o.Heartbeat)
		defer t.Stop()
		beat = t.C
	}
	for {
		k.o.Alive()
		select {
		case <-ctx.Done():
			k.end()
			return nil
		case <-beat:
			continue
		case _, ok := <-events:
			if !ok {
				return errNoEvents
			}
			k.told = time.Now()
			if k.told.Sub(k.ended) > calm*k.pause() {
				k.hurried = 0
			}
			n, ok := settle(ctx, events, k.o, k.patience())
			if !ok {
				return errNoEvents
			}
			k.add(func(c *Count) { c.Events += n })
			k.hurried++
		case <-again.C:
			k.told = time.Time{}
		}
		before := processor()
		k.round(ctx)
		if !k.told.IsZero() {
			k.ended, k.spent = time.Now(), processor()-before
		}
		again.Reset(k.next())
	}
}

// Pauses between rounds if a device changes all the time. Each pause is four times as long as the
// one before, up to crowdedPause. If rounds would then still take more than toldShare of a
// processor, the pause is longer, up to longestPause.
const (
	firstPause   = 50 * time.Millisecond
	crowdedPause = 500 * time.Millisecond
	toldShare    = 0.006
	// calm is a number of pauses. If no event has come for that long, the next event causes a round at
	// once.
	calm = 4
	// longestPause must be short compared with the time limit of a watchdog, because Alive is not
	// called during a pause.
	longestPause = 10 * time.Second
)

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pause returns the upper limit for the pause before the next round, if an event causes that round.
func (k *Keeper) pause() time.Duration {
	return min(longestPause, max(crowdedPause, time.Duration(float64(k.spent)/toldShare)))
}

// patience returns how long the keeper must still wait before a round, if an event comes now.
func (k *Keeper) patience() time.Duration {
	if k.hurried == 0 {
		return 0
	}
	pause := k.pause()
	if n := k.hurried - 1; n < 8 {
		pause = min(pause, firstPause<<(2*n))
	}
	return max(0, pause-time.Since(k.ended))
}

// settle waits until no event has come for a while, and returns the number of events. If least is
// positive, settle reads no event before that time has passed: to wake up for each event would cost
// more than a look.
func settle[E any](ctx context.Context, events <-chan E, o Options, least time.Duration) (n uint64, ok bool) {
	n = 1
	most := time.NewTimer(max(o.SettleMost, least))
	defer most.Stop()
	quiet := time.NewTimer(max(o.Settle, least))
	defer quiet.Stop()
	heard := events
	if least > 0 {
		heard = nil
	}
	for waiting := true; waiting; {
		select {
		case _, ok := <-heard:
			if !ok {
				return n, false
			}
			n++
			quiet.Reset(o.Settle)
		case <-quiet.C:
			waiting = false
		case <-most.C:
			waiting = false
		case <-ctx.Done():
			return n, true
		}
	}
	for { // read the events that arrived meanwhile
		select {
		case _, ok := <-events:
			if !ok {
				return n, false
			}
			n++
		default:
			return n, true
		}
	}
}

func (k *Keeper) add(f func(*Count)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.count)
}

func (k *Keeper) report(e Event) {
	e.Time = time.Now()
	if !k.told.IsZero() && (e.Kind == Repaired || e.Kind == Failed) {
		e.After = e.Time.Sub(k.told)
	}
	k.o.Report(e)
}

// round looks at the lanes and makes the repairs that are due.
func (k *Keeper) round(ctx context.Context) {
	views, ok := k.look(ctx)
	if !ok {
		return
	}
	if !k.anything(views) {
		return
	}
	release, err := k.m.Hold(ctx)
	switch {
	case errors.Is(err, engine.ErrBusy):
		if k.busy.IsZero() {
			k.busy = time.Now()
		}
		return
	case err != nil:
		k.fails(ctx, err)
		return
	}
	defer release()
	k.busy = time.Time{}
	// The first look may have seen another process's unfinished apply, so look again.
	if views, ok = k.look(ctx); !ok {
		return
	}
	for _, v := range k.note(views) {
		k.repair(ctx, v)
	}
}

// look compares the lanes with the kernel. If it cannot, it returns false.
func (k *Keeper) look(ctx context.Context) (views []View, ok bool) {
	began := time.Now()
	views, err := k.m.Look(ctx)
	now := time.Now()
	k.cost = now.Sub(began)
	if err != nil {
		k.fails(ctx, err)
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count.Looks++
	k.count.LastLook = now
	k.failing = ""
	for _, f := range k.files {
		maps.DeleteFunc(f.troubles, func(_ string, t *trouble) bool { return k.o.Patience.forgotten(t, now) })
	}
	return views, true
}

// fails reports that a look failed. It reports the same error only once.
func (k *Keeper) fails(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	was := k.failing
	k.failing = err.Error()
	k.mu.Unlock()
	if was != err.Error() {
		k.report(Event{Kind: Failed, Text: "the lanes cannot be looked at: " + err.Error()})
	}
}

// anything reports whether the views contain something that was not reported yet, or a repair is
// due. In these cases, round calls Hold and looks again.
func (k *Keeper) anything(views []View) bool {
	if len(views) != len(k.files) {
		return true
	}
	now := time.Now()
	for _, v := range views {
		f := k.files[v.Config]
		if f == nil || f.generation != v.Generation || f.ground != v.Ground || !maps.Equal(f.waits, v.Waits) {
			return true
		}
		there := 0
		for _, t := range f.troubles {
			if t.there {
				there++
			}
		}
		if there != len(v.Drifts) {
			return true
		}
		for _, d := range v.Drifts {
			t := f.troubles[d.Key]
			if t == nil || !t.there || t.reported != d.Found {
				return true
			}
			if at, ok := k.o.Patience.due(t); ok && !now.Before(at) && v.Waits[d.Device] == "" {
				return true
			}
		}
	}
	return false
}

// note reports what has changed. It returns the views that have a drift whose repair is due.
func (k *Keeper) note(views []View) (due []View) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, config := range slices.Sorted(maps.Keys(k.files)) {
		if !slices.ContainsFunc(views, func(v View) bool { return v.Config == config }) {
			delete(k.files, config)
			k.report(Event{Kind: Ended, Config: config, Text: "no lanes of this file are applied any more: nothing " +
				"is kept"})
		}
	}
	for _, v := range views {
		f := k.files[v.Config]
		if f == nil {
			f = &file{generation: v.Generation, ground: v.Ground, troubles: map[string]*trouble{}}
			k.files[v.Config] = f
			k.report(Event{Kind: Begun, Config: v.Config, Text: "its lanes are kept as they were applied"})
		}
		if f.generation != v.Generation {
			f.generation, f.troubles = v.Generation, map[string]*trouble{}
			k.report(Event{Kind: Notice, Config: v.Config, Text: "applied again: its lanes are kept as they are from " +
				"now on"})
		}
		if f.ground != v.Ground {
			f.ground = v.Ground
			for _, t := range f.troubles {
				t.anew()
			}
		}
		if k.noteFile(f, v) {
			due = append(due, v)
		}
	}
	return due
}

func (k *Keeper) noteFile(f *file, v View) (due bool) {
	now := time.Now()
	for _, dev := range slices.Sorted(maps.Keys(v.Waits)) {
		if f.waits[dev] != v.Waits[dev] {
			k.report(Event{Kind: Waiting, Config: v.Config, Device: dev, Text: v.Waits[dev]})
		}
	}
	for _, t := range f.troubles {
		if f.waits[t.device] != "" && v.Waits[t.device] == "" {
			// The device's outage has caused the drifts, so earlier repairs of them do not count.
			*t = trouble{there: t.there, reported: t.reported, seen: t.seen, device: t.device}
		}
	}
	f.waits = v.Waits
	present, folded := map[string]bool{}, map[string]bool{}
	for _, d := range v.Drifts {
		present[d.Key] = true
		for _, key := range d.With {
			folded[key] = true // now a part of another drift
		}
		due = k.noteDrift(f, v, d, now) || due
	}
	for _, key := range slices.Sorted(maps.Keys(f.troubles)) {
		t := f.troubles[key]
		if t.there && !present[key] {
			t.there, t.seen = false, now
			if t.released || folded[key] {
				t.released = false
				continue
			}
			k.report(Event{Kind: Returned, Config: v.Config, Key: key,
				Text: "as niclane left it again: another program, or a person, restored it"})
		}
	}
	return due
}

func (k *Keeper) noteDrift(f *file, v View, d verify.Finding, now time.Time) (due bool) {
	t := f.troubles[d.Key]
	if t == nil {
		t = &trouble{}
		f.troubles[d.Key] = t
	}
	t.seen, t.device = now, d.Device
	if !t.there || t.reported != d.Found {
		if t.there {
			t.anew() // the new value may be one that can be repaired
		}
		t.there, t.reported, t.futile = true, d.Found, false
		if !t.released {
			k.count.Drifts++
			e := of(Drift, v.Config, d)
			e.Text, e.Objects = d.Meaning, d.With
			k.report(e)
		}
	}
	if !t.left && k.o.Patience.worn(t) {
		k.leave(t, v.Config, d, fmt.Sprintf("left as it is: it was repaired %s, and something keeps changing it; "+
			"stop that, then %s", times(t.repairs), d.Repair))
	}
	at, ok := k.o.Patience.due(t)
	return ok && !now.Before(at) && v.Waits[d.Device] == ""
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (k *Keeper) leave(t *trouble, config string, d verify.Finding, why string) {
	t.left = true
	e := of(Left, config, d)
	e.Text = why
	k.report(e)
}

// repair makes the repairs of a view that are due, and reports their results.
func (k *Keeper) repair(ctx context.Context, v View) {
	now := time.Now()
	f := k.files[v.Config]
	leave := map[string]bool{}
	var due []verify.Finding
	k.mu.Lock()
	for _, d := range v.Drifts {
		t := f.troubles[d.Key]
		if at, ok := k.o.Patience.due(t); ok && !now.Before(at) && v.Waits[d.Device] == "" {
			due = append(due, d)
			k.o.Patience.repaired(t, now)
			continue
		}
		for _, key := range append(d.With, d.Key) {
			leave[key] = true
		}
	}
	k.mu.Unlock()
	r, err := k.m.Repair(ctx, v.Config, func(key string) bool { return leave[key] })
	if ctx.Err() != nil {
		return
	}
	for _, w := range r.Warnings {
		k.report(Event{Kind: Notice, Config: v.Config, Text: w})
	}
	views, ok := k.look(ctx)
	if !ok {
		return
	}
	after := View{Config: v.Config, Generation: f.generation}
	if i := slices.IndexFunc(views, func(x View) bool { return x.Config == v.Config }); i >= 0 {
		after = views[i]
	}
	k.mu.Lock()
	f.generation = after.Generation // the keeper's own repair changed it
	k.mu.Unlock()
	var missing []verify.Finding
	for _, d := range due {
		if !k.became(v.Config, d, after, r, err) {
			missing = append(missing, d)
		}
	}
	if len(missing) > 0 {
		k.release(ctx, v.Config, missing)
	}
}

// became reports the result of one repair. It returns true if the drift no longer exists.
func (k *Keeper) became(config string, d verify.Finding, after View, r engine.Repair, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.files[config].troubles[d.Key]
	i := slices.IndexFunc(after.Drifts, func(x verify.Finding) bool { return x.Key == d.Key })
	var done []string
	for _, key := range append([]string{d.Key}, d.With...) {
		if slices.Contains(r.Done, key) {
			done = append(done, key)
		}
	}
	if i < 0 {
		t.there, t.seen, t.released, t.failed = false, time.Now(), false, false
		k.count.Repairs++
		e := of(Repaired, config, d)
		e.Want, e.Found = "", ""
		e.Text, e.Objects = "as niclane left it again", done
		if len(done) > 0 {
			e.Text = "made again, " + counted(len(done), "object", "objects")
		}
		k.report(e)
		return true
	}
	if err == nil && len(done) == 0 && after.Drifts[i].Found != d.Found {
		return false // the drift changed meanwhile, so the next look reports its new value
	}
	t.reported = after.Drifts[i].Found
	t.failed = err != nil
	switch {
	case err != nil:
		k.count.Failures++
		e := of(Failed, config, d)
		e.Text = "not repaired: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		k.report(e)
	case len(done) == 0:
		t.futile = true
		e := of(Left, config, d)
		e.Text = "left as it is: apply does not repair this; " + d.Repair
		k.report(e)
		return false
	}
	if k.o.Patience.worn(t) {
		k.leave(t, config, d, fmt.Sprintf("left as it is after %s; %s", counted(t.repairs, "try", "tries"), d.Repair))
	}
	return false
}

// counted formats a number with its noun: "1 try", "2 tries".
func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

func (k *Keeper) release(ctx context.Context, config string, missing []verify.Finding) {
	keys, err := k.m.Release(ctx, config, missing)
	if len(keys) > 0 {
		k.mu.Lock()
		f := k.files[config]
		as := f.troubles[missing[0].Key]
		for _, key := range keys {
			// Restore this object only after the missing object is back.
			f.troubles[key] = &trouble{there: true, released: true, repairs: as.repairs, last: as.last, seen: as.last,
				device: as.device}
		}
		k.mu.Unlock()
		k.report(Event{Kind: Released, Config: config, Objects: keys,
			Text: "back as before niclane until the lane is whole: " + strings.Join(keys, ", ")})
	}
	if err != nil && ctx.Err() == nil {
		k.report(Event{Kind: Failed, Config: config, Text: err.Error()})
	}
}

// next returns how long the keeper may wait until the next look if no event comes.
func (k *Keeper) next() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	wait := max(k.o.Again, time.Duration(float64(k.cost)/share))
	if !k.busy.IsZero() {
		// Soon after the other process began to apply, look often, because an apply may be short. Later,
		// look rarely, because the apply may wait for its confirmation.
		wait = min(wait, max(100*time.Millisecond, min(now.Sub(k.busy)/4, 5*time.Second)))
	}
	if k.failing != "" {
		wait = min(wait, 5*time.Second)
	}
	for _, f := range k.files {
		for _, t := range f.troubles {
			if at, ok := k.o.Patience.due(t); ok && t.there && t.repairs > 0 && f.waits[t.device] == "" {
				wait = min(wait, max(at.Sub(now), time.Millisecond))
			}
		}
	}
	return wait
}

func (k *Keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, config := range slices.Sorted(maps.Keys(k.files)) {
		k.report(Event{Kind: Ended, Config: config, Text: "the watch ends; the lanes stay as they are, and nothing " +
			"repairs them"})
	}
}

// A Condition is the state of one lanes file.
type Condition struct {
	Config string
	// Drifts are the keys of present drifts that the keeper repairs. Left are the keys of present
	// drifts that it no longer repairs.
	Drifts, Left []string
	// Waits has the devices on which repairs are impossible now, with the reasons.
	Waits map[string]string
}

// State returns the present conditions and the counts. failing is the error of the last look, "" if
// it succeeded.
func (k *Keeper) State() (conditions []Condition, count Count, failing string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, config := range slices.Sorted(maps.Keys(k.files)) {
		f := k.files[config]
		c := Condition{Config: config, Waits: maps.Clone(f.waits)}
		for _, key := range slices.Sorted(maps.Keys(f.troubles)) {
			switch t := f.troubles[key]; {
			case t.there && (t.left || t.futile):
				c.Left = append(c.Left, key)
			case t.there:
				c.Drifts = append(c.Drifts, key)
			}
		}
		conditions = append(conditions, c)
	}
	return conditions, k.count, k.failing
}
