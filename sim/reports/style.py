"""The style sheet of pages: one column on a phone, figures side by side on a wide screen.

Verdicts are told apart by their words; their colours are a blue and an orange, which colour-blind readers can
tell apart.
"""

STYLE = """
body { margin: 0; background: #f4f5f7; color: #1f2933; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 50rem; margin: 0 0 .7rem; overflow-wrap: anywhere; }
code { background: #eceff3; border-radius: 3px; padding: 0 .25em; font-size: .9em; overflow-wrap: anywhere; }
section, .conclusion, .origin { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; }
section, .conclusion, .origin { padding: 1rem 1.2rem; margin-top: 1rem; }
.conclusion { font-size: 1.1rem; border-left: 5px solid #0072b2; }
.conclusion p { max-width: 56rem; margin: 0 0 .35rem; }
.conclusion p:last-child { margin: 0; }
.origin { font-size: .88rem; color: #52606d; margin-bottom: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { font-weight: 600; }
dd { margin: 0; overflow-wrap: anywhere; }
#definitions dl { grid-template-columns: minmax(7rem, max-content) 1fr; gap: .4rem 1.2rem; }
nav ul { margin: .8rem 0 0; padding: 0; list-style: none; columns: 22rem; font-size: .92rem; }
nav li { break-inside: avoid; padding: .1rem 0; }
a { color: #1b6ca8; text-decoration: none; }
a:hover { text-decoration: underline; }
summary { cursor: pointer; color: #1b6ca8; font-size: .88rem; }
.badge { display: inline-block; border-radius: 9px; padding: 0 .6em; font-size: .72rem; font-weight: 600; }
.badge { background: #e4e7eb; color: #3e4c59; line-height: 1.6; vertical-align: middle; white-space: nowrap; }
.badge.good { background: #d6eaf8; color: #00507d; }
.badge.bad { background: #fbe3d0; color: #8a3d00; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.tile { background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: .5rem .9rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: #616e7c; font-size: .85rem; }
.tile.good b { color: #0072b2; }
.tile.bad b { color: #b34a00; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(27rem, 100%), 1fr)); }
.figures { gap: 1.2rem 1.6rem; margin: .6rem 0 1rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figcaption, .caption { color: #52606d; font-size: .9rem; margin: 0 0 .3rem; }
.wide { overflow: auto; max-height: 32rem; margin: .3rem 0 .8rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #e8ebef; text-align: left; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; color: #52606d; font-weight: 600; z-index: 1; }
td:first-child, th:first-child { position: sticky; left: 0; background: #fff; padding-left: 0; }
td:first-child { min-width: min(18rem, 35vw); max-width: 45vw; white-space: normal; }
td:first-child { overflow-wrap: anywhere; }
th:first-child { z-index: 2; }
.n { text-align: right; }
@media (max-width: 40rem) {
  dl, #definitions dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  figure { overflow-x: clip; }  /* legends are as wide as their font */
}
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""
