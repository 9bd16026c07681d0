"""The export formats: one writer per format, and the parts that they share.

registry.py      the table of formats: name, writer and needs of each
dataset.py       the images of an export, with their bytes and sizes; reports every loss
annotated.py     one image with all answers about it
copies.py        links, copies or fetches the images
coco.py          COCO
cvat.py          CVAT for images
fiftyone.py      FiftyOne
label_studio.py  Label Studio
parquet.py       Parquet
transcripts.py   txt, JSON, srt and vtt of recordings
webdataset.py    WebDataset
yolo.py          YOLO
json_file.py     writes JSON piece by piece
xml_text.py      makes text legal in XML
"""

__all__: list[str] = []
