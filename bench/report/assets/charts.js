// SPDX-License-Identifier: Apache-2.0
// Draws the charts of the report from the JSON in #data with Apache ECharts.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  // A result cut short has no ratios, and a chart without data no axis.
  const has = { curves: data.curves.some((c) => c.steps && !c.floor), ratios: data.ratios.length > 0, repeats: data.repeats.some((r) => r.points) };
  for (const c of data.curves) c.steps ??= [];
  for (const r of data.repeats) r.points ??= [];
  const chart = Object.fromEntries(Object.keys(has)
    .map((id) => [id, document.getElementById(id)])
    .filter(([id, at]) => at && (has[id] || at.closest("figure").remove()))
    .map(([id, at]) => [id, echarts.init(at, null, { renderer: "svg" })]));

  const unit = (ns) => {
    const units = ["ns", "µs", "ms", "s"];
    let i = 0;
    while (ns >= 999.5 && i < 3) { ns /= 1000; i++; }
    return `${Number(ns.toPrecision(3))} ${units[i]}`;
  };
  const times = (v) => `${v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : Math.round(v)}×`;
  const nines = (x) => x < 2 ? "" : `P${Number((100 * (1 - 1 / x)).toFixed(Math.max(0, Math.ceil(Math.log10(x)) - 2)))}`;
  // Bounds of a log axis, on the fraction 1/n of a power of base.
  const bounds = (values, base = 10, n = 4) => {
    const ok = values.filter((v) => v > 0);
    const log = (v) => (Math.log(v) / Math.log(base)) * n;
    return { min: base ** (Math.floor(log(Math.min(...ok)) - 0.2) / n), max: base ** (Math.ceil(log(Math.max(...ok)) + 0.2) / n) };
  };

  function draw() {
    const css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(`--${name}`).trim();
    const narrow = window.innerWidth < 560;
    const text = { color: color("dim"), fontSize: narrow ? 11 : 12, fontFamily: getComputedStyle(document.body).fontFamily };
    const axis = {
      axisLine: { lineStyle: { color: color("line") } }, axisTick: { show: false },
      axisLabel: { ...text, hideOverlap: true, showMinLabel: false, showMaxLabel: false }, splitLine: { lineStyle: { color: color("line"), opacity: 0.7 } },
      minorSplitLine: { show: false }, nameTextStyle: text,
    };
    const base = {
      animation: false, textStyle: text, backgroundColor: "transparent",
      tooltip: {
        backgroundColor: color("panel"), borderColor: color("line"), textStyle: { ...text, color: color("ink") }, confine: true,
      },
      legend: { top: 0, left: 0, itemWidth: 18, itemHeight: 9, textStyle: { ...text, color: color("ink") }, icon: "roundRect" },
    };

    const nearest = (c, x) => c.steps.find((s) => 1 / (1 - s.p / 100) >= x * 0.999);
    chart.curves?.setOption({
      ...base,
      grid: { left: 8, right: 22, top: 40, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      tooltip: {
        ...base.tooltip, trigger: "axis", axisPointer: { type: "line", lineStyle: { color: color("dim") } },
        formatter: (ps) => {
          const x = ps[0].axisValue;
          const rows = data.curves.map((c) => [c, nearest(c, x)]).filter(([, s]) => s)
            .map(([c, s]) => `<tr><td style="padding-right:14px"><span style="color:${color(c.cls)}">■</span> ${c.name}</td><td style="text-align:right">${unit(s.ns)}</td></tr>`);
          return `${nines(x)}<table>${rows.join("")}</table>`;
        },
      },
      xAxis: { ...axis, type: "log", min: 1, max: 1.3 * Math.max(10, ...data.curves.flatMap((c) => c.steps.map((s) => 1 / (1 - s.p / 100)))), axisLabel: { ...axis.axisLabel, formatter: nines } },
      yAxis: {
        ...axis, type: "log",
        ...bounds(data.curves.flatMap((c) => c.steps.filter((s) => s.p >= 10).map((s) => s.ns))),
        axisLabel: { ...axis.axisLabel, formatter: unit },
      },
      series: data.curves.map((c) => ({
        name: c.name, type: "line", showSymbol: false, symbol: "none",
        data: c.steps.map((s) => [1 / (1 - s.p / 100), s.ns]),
        lineStyle: { width: c.floor ? 1.5 : 2.5, type: c.floor ? [5, 4] : "solid", color: color(c.cls) },
        itemStyle: { color: color(c.cls) }, z: c.floor ? 1 : 3,
        markLine: c !== data.curves.find((d) => d.steps.length > 0) ? undefined : {
          silent: true, symbol: "none", data: [{ xAxis: 2 }], lineStyle: { color: color("line"), type: "solid" },
          label: { ...text, formatter: "P50", position: "start", distance: 6 },
        },
      })),
    }, true);

    const rows = data.ratios;
    // An interval of few pairs can be endless: it runs out of the picture.
    const all = rows.flatMap((r) => [...r.points, r.estimate]).concat([0.9, data.goal * 1.1 || 1]);
    const jitter = (i, n) => (n > 1 ? (i / (n - 1) - 0.5) * 0.5 : 0);
    chart.ratios?.setOption({
      ...base, legend: { show: false },
      grid: { left: 8, right: 26, top: 26, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      tooltip: { ...base.tooltip, trigger: "item", formatter: (p) => p.data && p.data.tip || "" },
      xAxis: { ...axis, type: "log", logBase: 2, ...bounds(all, 2, 2), axisLabel: { ...axis.axisLabel, formatter: (v) => `${Number(v.toPrecision(3))}×` } },
      yAxis: {
        ...axis, type: "value", min: -0.5, max: rows.length - 0.5, interval: 0.5, inverse: true, splitLine: { show: false },
        axisLabel: { ...axis.axisLabel, color: color("ink"), hideOverlap: false, showMinLabel: true, showMaxLabel: true, formatter: (v) => (Number.isInteger(v) && rows[v] ? rows[v].name : "") },
      },
      series: [
        ...rows.map((r, i) => ({
          type: "scatter", symbolSize: narrow ? 6 : 7, z: 4, itemStyle: { color: color(r.cls), opacity: 0.55, borderColor: color("bg"), borderWidth: 1 },
          data: r.points.map((v, k) => ({ value: [v, i + jitter(k, r.points.length)], tip: `${r.name}, pair ${k + 1}: ${times(v)}` })),
        })),
        ...rows.map((r, i) => ({
          type: "line", symbol: "none", silent: true, lineStyle: { width: 6, color: color(r.cls), cap: "round" },
          data: [[r.low, i], [r.high, i]],
        })),
        ...rows.map((r, i) => ({
          type: "scatter", symbol: "diamond", symbolSize: 12, z: 5,
          itemStyle: { color: color("bg"), borderColor: color(r.cls), borderWidth: 2 },
          data: [{ value: [r.estimate, i], tip: `${r.name}: ${times(r.estimate)} (${times(r.low)} to ${times(r.high)})` }],
        })),
        {
          type: "line", data: [], markLine: {
            silent: true, symbol: "none", label: { ...text, position: "start", distance: 4 },
            data: [
              { xAxis: 1, lineStyle: { color: color("dim"), type: "solid", width: 1 }, label: { show: false } },
              ...(data.goal > 0 ? [{ xAxis: data.goal, lineStyle: { color: color("met"), type: [5, 4], width: 1.5 }, label: { formatter: `goal ${data.goal}×`, color: color("met") } }] : []),
            ],
          },
        },
      ],
    }, true);

    chart.repeats?.setOption({
      ...base,
      legend: { ...base.legend, data: [...new Set(data.repeats.map((r) => r.variant))] },
      grid: { left: 8, right: 22, top: 40, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      tooltip: { ...base.tooltip, trigger: "item", formatter: (p) => p.data.tip },
      xAxis: { ...axis, type: "value", min: 0.5, max: Math.max(...data.repeats.flatMap((r) => r.points.map((p) => p[0])), 1) + 0.5, interval: 0.5, splitLine: { show: false }, axisLabel: { ...axis.axisLabel, hideOverlap: true, formatter: (v) => (Number.isInteger(v) ? v : "") } },
      yAxis: { ...axis, type: "log", ...bounds(data.repeats.flatMap((r) => r.points.map((p) => p[1]))), axisLabel: { ...axis.axisLabel, formatter: unit } },
      series: data.repeats.map((r) => ({
        name: r.variant, type: "line", symbol: r.p === 50 ? "circle" : "emptyCircle", symbolSize: r.p === 50 ? 8 : 9,
        lineStyle: { width: 1, opacity: 0.35, color: color(r.cls) }, itemStyle: { color: color(r.cls) },
        data: r.points.map(([x, ns]) => ({ value: [x, ns], tip: `${r.variant}, repeat ${x}: P${r.p} ${unit(ns)}` })),
      })),
    }, true);
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = window.innerWidth;
  addEventListener("resize", () => {
    for (const c of Object.values(chart)) c.resize();
    if ((width < 560) !== (window.innerWidth < 560)) draw();
    width = window.innerWidth;
  });
})();
