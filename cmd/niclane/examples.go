// SPDX-License-Identifier: Apache-2.0

package main

//go:generate go test . -run Manual|Current -update

// examples are the examples in the help of each command.
var examples = map[string]string{
	"suggest": `
niclane suggest > lanes.yaml
niclane suggest --for 30s eth0 | niclane plan -
niclane suggest --unit memcached.service
niclane suggest --port 11211 --protocol tcp`,
	"probe": `
niclane probe eth0
niclane probe --json eth0 > eth0.json`,
	"check": `
niclane check lanes.yaml
niclane check - < lanes.yaml`,
	"plan": `
niclane plan lanes.yaml
niclane plan --steps lanes.yaml
niclane plan --stdin /etc/niclane/eth0.yaml < new.yaml`,
	"apply": `
niclane apply --confirm-within 60s lanes.yaml
niclane apply --confirm-within 0 lanes.yaml`,
	"confirm": `
niclane apply --confirm-within 60s lanes.yaml && niclane confirm
niclane confirm --json`,
	"rollback": `
niclane rollback
niclane rollback --last
niclane rollback --force eth0`,
	"status": `
niclane status eth0
niclane status --watch --interval 500ms
niclane status --json`,
	"top": `
niclane top
niclane top --interval 250ms eth0`,
	"waits": `
niclane waits eth0
niclane waits --port 11211 --for 30s eth0
niclane waits --lane cache --watch eth0
niclane waits --json > waits.json`,
	"verify": `
niclane verify
niclane verify --for 0 lanes.yaml
niclane verify --probe 192.0.2.7 --probe 2001:db8::7 eth0`,
	"watch": `
niclane watch /etc/niclane/eth0.yaml
niclane watch --listen 127.0.0.1:9417 --json`,
	"persist": `
niclane persist /etc/niclane/eth0.yaml
niclane persist --listen 127.0.0.1:9417 --waits /etc/niclane/eth0.yaml
niclane persist --remove eth0`,
	"run": `
niclane run --lane memcached -- memcached -u nobody -t 2
niclane run --lane web --listeners --pin lanes.yaml -- nginx -g 'daemon off;'`,
	"split": `
niclane split --lane memcached --print lanes.yaml -- memcached -u nobody
niclane split --lane web --nodes 0,1 lanes.yaml -- nginx -c /etc/nginx/nginx{node}.conf`,
	"attach": `
niclane attach --lane memcached --unit memcached.service
niclane attach --lane web --pid 4711 --listeners
niclane attach --lane guest --tap vnet0`,
	"detach": `
niclane detach --unit memcached.service
niclane detach --lane web`,
	"advise": `
niclane advise --lane memcached --for memcached
niclane advise --lane web lanes.yaml`,
	"lab": `
niclane lab up
niclane lab exec sut -- niclane probe lane0
niclane lab down`,
	"lab up": `
niclane lab up
niclane lab up --link-rate 1gbit --buffer 1MiB
niclane lab --name other up --card none`,
	"lab virtual": `
niclane lab virtual -- niclane lab exec sut -- niclane probe
niclane lab virtual --link-rate 10gbit --out results -- ./measure.sh`,
	"lab exec": `
niclane lab exec sut -- niclane status
niclane lab exec client -- ping -c 3 10.77.0.1`,
	"lab status": `
niclane lab status
niclane lab --name other status --json`,
	"lab down": `
niclane lab down
niclane lab --name other down`,
	"convert": `
niclane convert memcached.conf > lanes.yaml
niclane convert --dev eth0 - < adq.json`,
	"version": `
niclane version
niclane version --json`,
}
