// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"os"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Example makes lanes, compares them with the kernel, and undoes them. It must run as root in the
// network namespace of the device.
func Example() {
	const name = "/etc/niclane/eth1.yaml"
	text, err := os.ReadFile(name)
	if err != nil {
		fmt.Println(err)
		return
	}
	file, err := engine.Parse(name, text)
	if err != nil {
		fmt.Println(err) // eth1.yaml:4: lanes.web.queues: ...
		return
	}
	ctx := context.Background()
	e := &engine.Engine{StateDir: engine.DefaultStateDir, RunDir: engine.DefaultRunDir}
	made, err := e.Apply(ctx, file, engine.ApplyOptions{Planned: func(p *plan.Plan) error {
		plan.WriteText(os.Stdout, p.Steps) // at this point, nothing has changed
		return nil
	}})
	if err != nil {
		fmt.Println(err) // nothing has changed, or a FailedError says what is left
		return
	}
	fmt.Println(len(made.Plan.Lanes), "lanes")

	compared, err := e.Compare(ctx, name, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range compared {
		verify.WriteText(os.Stdout, c.Findings)
	}

	undone, err := e.Rollback(ctx, engine.RollbackOptions{Of: name})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(undone[0].Report.Undone), "objects are as before")
}
