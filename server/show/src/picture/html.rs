//! Pictures and tables as one page that needs nothing else: no scripts, no fonts, nothing from anywhere.

use super::figure::Figure;
use super::sheet::{Block, Sheet};
use super::svg;
use super::xml::Xml;
use crate::picture::figure::Table;

const RULES: &str = "\
    :root{color-scheme:light dark}\
    body{font:14px/1.5 system-ui,-apple-system,Segoe UI,Roboto,sans-serif;margin:2rem auto;padding:0 1rem;\
    max-width:1400px;background:#ffffff;color:#1c2128}\
    h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2.2rem}h3{font-size:1rem}\
    .side{display:flex;flex-wrap:wrap;gap:2rem}.side figure{flex:1 1 30rem;min-width:0}\
    figure{margin:0}figcaption,.note{color:#5a6472;font-size:.85rem;margin:.2rem 0}\
    .scroll{overflow-x:auto}\
    .headline{list-style:none;margin:.4rem 0 1rem;padding:0;font-weight:600}.headline li{margin:.15rem 0}\
    .drawn{max-width:100%;height:auto}.narrow{display:none}\
    @media (max-width:40rem){.wide{display:none}.narrow{display:block}}\
    table{border-collapse:collapse;font-size:.85rem}\
    th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid #dde2e9;vertical-align:top}\
    .warning{border-left:4px solid #d98a00;padding-left:.7rem}\
    @media (prefers-color-scheme:dark){body{background:#12161c;color:#e3e8ef}\
    figcaption,.note{color:#97a1af}th,td{border-color:#2b333f}}";

/// The rules of pages that [`fragment`]s and inline pictures are parts of.
pub fn rules() -> String {
    format!("{RULES}{}", svg::rules())
}

/// What a sheet shows, as a part of a page that has the [`rules`] and a heading of its own.
pub fn fragment(sheet: &Sheet) -> String {
    let mut xml = Xml::default();
    told(&mut xml, sheet);
    xml.finish()
}

/// The page of a sheet.
pub fn render(sheet: &Sheet) -> String {
    let mut xml = Xml::default();
    xml.own("<!DOCTYPE html>\n");
    xml.element("html", &[("xmlns", "http://www.w3.org/1999/xhtml"), ("lang", "en")], |xml| {
        xml.element("head", &[], |xml| head(xml, sheet));
        xml.line();
        xml.element("body", &[], |xml| body(xml, sheet));
    });
    xml.line();
    xml.finish()
}

fn head(xml: &mut Xml, sheet: &Sheet) {
    xml.empty("meta", &[("charset", "utf-8")]);
    // Whatever a name might smuggle in: nothing is loaded and nothing is run.
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    xml.empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", policy)]);
    xml.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    xml.leaf("title", &[], &format!("Loadmaster: {}", sheet.title));
    xml.style(RULES);
    xml.style(&svg::rules());
}

fn body(xml: &mut Xml, sheet: &Sheet) {
    xml.leaf("h1", &[], &sheet.title);
    told(xml, sheet);
}

fn told(xml: &mut Xml, sheet: &Sheet) {
    if !sheet.headline.is_empty() {
        xml.element("ul", &[("class", "headline")], |xml| {
            sheet.headline.iter().for_each(|line| xml.leaf("li", &[], line));
        });
    }
    let noted = |xml: &mut Xml, lines: &[String]| {
        lines.iter().for_each(|line| xml.leaf("p", &[("class", "warning")], line));
    };
    noted(xml, &sheet.contradictions);
    // Warnings stand between the pictures and the details.
    let (details, pictures): (Vec<&Block>, Vec<&Block>) =
        sheet.blocks.iter().partition(|block| block.file_only);
    for one in pictures {
        xml.line();
        block(xml, one);
    }
    noted(xml, &sheet.warnings);
    for one in details {
        xml.line();
        block(xml, one);
    }
}

fn block(xml: &mut Xml, block: &Block) {
    xml.leaf("h2", &[], block.title);
    let several = block.figures.len() > 1;
    let class = if several { "side" } else { "one" };
    xml.element("div", &[("class", class)], |xml| {
        for (plan, figure) in &block.figures {
            xml.element("figure", &[], |xml| {
                if !plan.is_empty() {
                    xml.leaf("h3", &[], plan);
                }
                if !figure.summary().is_empty() {
                    xml.leaf("figcaption", &[], figure.summary());
                }
                match figure {
                    Figure::Table(of) => table(xml, of),
                    _ => svg::inline(xml, figure, &format!("{} {plan}", block.title), several),
                }
                for note in figure.notes() {
                    xml.leaf("p", &[("class", "note")], note);
                }
            });
        }
    });
}

fn table(xml: &mut Xml, table: &Table) {
    // Whoever has no pointer reaches it, too.
    let scrolled =
        [("class", "scroll"), ("tabindex", "0"), ("role", "group"), ("aria-label", "The same in numbers")];
    xml.element("div", &scrolled, |xml| {
        xml.element("table", &[], |xml| {
            xml.element("thead", &[], |xml| {
                xml.element("tr", &[], |xml| table.head.iter().for_each(|cell| xml.leaf("th", &[], cell)));
            });
            xml.element("tbody", &[], |xml| {
                for row in &table.rows {
                    xml.element("tr", &[], |xml| row.iter().for_each(|cell| xml.leaf("td", &[], cell)));
                }
            });
        });
    });
}
